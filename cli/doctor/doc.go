// SPDX-License-Identifier: Apache-2.0

// Package doctor is `substorm doctor`: whether this computer can run a Site by itself, what it would lose in a power cut, and what to do.
package doctor
