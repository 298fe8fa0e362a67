package clock

import (
	"encoding/binary"
	"os"
	"syscall"
)

const mappable = true

// share makes the file with the number 0, and maps it: every process that maps it sees a store at once.
func share(name string) ([]byte, error) {
	if err := os.WriteFile(name, make([]byte, 8), 0o644); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unshare(mapped []byte) error { return syscall.Munmap(mapped) }

func put(mapped []byte, n int64) { binary.NativeEndian.PutUint64(mapped, uint64(n)) }
