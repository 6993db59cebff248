// SPDX-License-Identifier: Apache-2.0

package plan

// LeastCompared is how many copies a run compares at least of what a partner had confirmed before, however small its share is.
const LeastCompared = 3

// Doubtful says whether copies that a run compared show that the others must be compared, too: half of them, or more than a few, are not at
// the partner as they should be. A disk that is not mounted, or another folder in its place, looks so; damage of single files does not.
func Doubtful(compared, differing int) bool {
	return differing > 0 && (2*differing >= compared || differing > max(3, compared/100))
}
