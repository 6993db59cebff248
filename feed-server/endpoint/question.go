// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/substorm/substorm/internal/problem"
)

// Questions reads the lines of the body of a request, which the server has bounded.
func Questions[Q any](v *Request) ([]Q, *problem.Problem) {
	lines := json.NewDecoder(v.Body)
	var all []Q
	for {
		var q Q
		switch err := lines.Decode(&q); {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		case errors.Is(err, io.EOF):
			return nil, problem.New(http.StatusBadRequest, "the body asks for nothing: it is JSON lines, see the reference of the mirror index")
		case err != nil:
			return nil, problem.New(http.StatusBadRequest, "line %d of the body cannot be read: %v", len(all)+1, err)
		}
		all = append(all, q)
	}
}

// Distinct refuses two questions about the same subject, as of returns it: a short body would have the server do the same work hundreds
// of times.
func Distinct[Q any](questions []Q, of func(Q) string) *problem.Problem {
	asked := make(map[string]bool, len(questions))
	for i, q := range questions {
		about := of(q)
		if asked[about] {
			return problem.New(http.StatusBadRequest, "line %d of the body asks for %.200s, as a line before it does: ask for each once", i+1, about)
		}
		asked[about] = true
	}
	return nil
}
