package bulk

import (
	"errors"
	"io"
	"os"
)

// File is what an export writes to. It has whole pages alone, so that the cursor of an export that failed continues behind its last row.
type File struct {
	*os.File
	kept int64
}

// NewFile makes a file that does not exist yet.
func NewFile(name string) (*File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &File{File: f}, nil
}

// Keep says that everything that was written so far is whole.
func (f *File) Keep() {
	if at, err := f.Seek(0, io.SeekCurrent); err == nil {
		f.kept = at
	}
}

// End closes the file. After a failure it first cuts off what Keep was not called for, and removes a file of which nothing is left: it
// would be in the way of the next export.
func (f *File) End(failed bool) error {
	if !failed {
		return f.Close()
	}
	if f.kept == 0 {
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
	return errors.Join(f.Truncate(f.kept), f.Close())
}
