// SPDX-License-Identifier: Apache-2.0

package manifest

const (
	// idCost is what one identity takes in a map of them, in bytes; indexCost
	// what one object of the index does. Both were measured by TestCosts.
	idCost    = 40
	indexCost = 112
	// minMemory is the least that allows for some progress without reading the
	// same manifests over and over.
	minMemory = 256 << 10
)

// limits say how much the writer remembers.
type limits struct {
	// index is how many objects are remembered to recognize duplicates.
	index int
	// ids is how many identities of listed objects the writer holds, and how
	// many the sweep does; while it reads a day the writer holds half as many more.
	ids int
}

// limitsOf shares out memory in bytes: half for the index of duplicates, half for
// the identities.
func limitsOf(memory int64) limits {
	memory = max(memory, minMemory)
	return limits{index: int(memory / 2 / indexCost), ids: int(memory / 2 / (idCost * 5 / 2))}
}
