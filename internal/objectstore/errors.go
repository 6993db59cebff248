// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"
)

// explain names the call and the key and puts one of this package's errors
// before what the server or the network said.
func explain(call, key string, err error) error {
	if err == nil {
		return nil
	}
	if key != "" {
		call += " " + key
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", call, err)
	}
	kind := classify(err)
	if kind == nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return fmt.Errorf("%s: %w: %w", call, kind, err)
}

// explainCreation is explain for a call that needs no object: a server that finds none is
// no S3 server, but a proxy or an ingress before it.
func explainCreation(call, key string, err error) error {
	err = explain(call, key, err)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %v", ErrNoS3, err)
	}
	return err
}

// classify returns nil for what is none of this package's errors: a request
// that is wrong in itself.
func classify(err error) error {
	var e minio.ErrorResponse
	if !errors.As(err, &e) {
		if isOther(err) {
			return ErrNoS3
		}
		return ErrUnavailable // no answer came from the server
	}
	if e.StatusCode == 0 && e.Code == minio.InternalError { // minio-go says so of an answer whose headers are not those of an object
		return ErrNoS3
	}
	switch e.Code {
	case minio.NoSuchBucket:
		return ErrNoBucket
	case minio.NoSuchKey, minio.NoSuchUpload, minio.NoSuchVersion:
		return ErrNotFound
	case minio.InvalidRange:
		return ErrRange
	case minio.PreconditionFailed:
		return ErrExists
	case minio.AccessDenied, minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch, minio.RequestTimeTooSkewed,
		"ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed", // with 400
		"XAdminUserNotFound": // versitygw, with 404, for an unknown access key
		return ErrAccessDenied
	case minio.XAmzContentSHA256Mismatch, minio.BadDigest, minio.InvalidDigest, "XAmzContentChecksumMismatch":
		return ErrDigest
	case minio.IncompleteBody, minio.UnexpectedEOF:
		return nil
	case "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded":
		return ErrFull
	case "ConditionalRequestConflict", "OperationAborted", "RequestTimeout": // another request was in the way
		return ErrUnavailable
	}
	switch {
	case e.StatusCode/100 == 3: // a server of S3 is not asked by way of another one
		return ErrNoS3
	case e.StatusCode == http.StatusPreconditionFailed:
		return ErrExists
	case e.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return ErrRange
	case e.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case e.StatusCode == http.StatusForbidden, e.StatusCode == http.StatusUnauthorized:
		return ErrAccessDenied
	case e.StatusCode == http.StatusInsufficientStorage:
		return ErrFull
	case e.StatusCode == http.StatusTooManyRequests, e.StatusCode >= 500 && e.StatusCode != http.StatusNotImplemented:
		return ErrUnavailable
	default:
		return nil
	}
}
