//go:build !linux && !darwin

package bench

// freeBytes is not known here.
func freeBytes(string) (uint64, error) { return 0, errDiskUnknown }
