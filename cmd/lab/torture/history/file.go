package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// line is one line of a file: an entry or, as the last line, the tables.
type line struct {
	Entry
	Tables *Tables `json:"tables,omitempty"`
}

// Write writes a history as JSON: a line for each entry, and then the tables.
func Write(to io.Writer, h History) error {
	buffered := bufio.NewWriterSize(to, 1<<16)
	lines := json.NewEncoder(buffered)
	for i, e := range h.Entries {
		if err := lines.Encode(e); err != nil {
			return fmt.Errorf("write entry %d: %w", i, err)
		}
	}
	if err := lines.Encode(line{Tables: &h.Tables}); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return buffered.Flush()
}

// Parse reads the output of [Write]. It returns an error if the tables are missing, because without them nothing can be
// judged.
func Parse(from io.Reader) (h History, err error) {
	lines := json.NewDecoder(bufio.NewReaderSize(from, 1<<16))
	complete := false
	for {
		var l line
		err := lines.Decode(&l)
		switch {
		case errors.Is(err, io.EOF) && complete:
			return h, nil
		case errors.Is(err, io.EOF):
			return h, errors.New("the history ends before its tables: the run was cut short")
		case err != nil:
			return h, fmt.Errorf("read entry %d: %w", len(h.Entries), err)
		case l.Tables != nil:
			h.Tables, complete = *l.Tables, true
		default:
			h.Entries = append(h.Entries, l.Entry)
		}
	}
}

// WriteFile writes a history to a file; see [Write].
func WriteFile(name string, h History) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(Write(f, h), f.Close())
}

// ReadFile reads a file of [WriteFile].
func ReadFile(name string) (History, error) {
	f, err := os.Open(name)
	if err != nil {
		return History{}, err
	}
	defer f.Close()
	return Parse(f)
}
