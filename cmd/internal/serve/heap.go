package serve

import "runtime"

// heapFloor is memory that nobody writes to, so that it takes none. It makes the heap look larger to the garbage collector,
// which begins when the heap has doubled: a node holds few megabytes and allocates a hundred in a second, and would be
// collected dozens of times in it, for a fifth of its CPU.
const heapFloor = 32 << 20

// withHeapFloor keeps it until f returns.
func withHeapFloor(f func() error) error {
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	return f()
}
