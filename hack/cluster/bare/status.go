// SPDX-License-Identifier: Apache-2.0

package bare

// NodeState is what became of a node.
type NodeState string

// The states of a node.
const (
	Running NodeState = "running"
	Off     NodeState = "off" // killed, or not started since the machine booted
	CutOff  NodeState = "cut off"
)

// NodeStatus is one node and how to reach it.
type NodeStatus struct {
	Name    string
	State   NodeState
	Address string
	PID     int // of its first process, as the machine sees it; 0 when off
}

// Status returns the nodes in order.
func (c *Cluster) Status() []NodeStatus {
	var all []NodeStatus
	for n := 1; n <= c.rec.Nodes; n++ {
		s := NodeStatus{Name: NodeName(n), State: Running, Address: addresses{c.rec.Base}.node(n), PID: c.pid(NodeName(n))}
		switch {
		case s.PID == 0:
			s.State = Off
		case !c.plugged(n):
			s.State = CutOff
		}
		all = append(all, s)
	}
	return all
}

// Ranges returns the address ranges of nodes, pods and Services.
func (c *Cluster) Ranges() (nodes, pods, services string) {
	a := addresses{c.rec.Base}
	return a.nodes(), a.pods(), a.services()
}
