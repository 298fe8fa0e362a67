package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Log is what the nodes' log says of the audit: evidence that is not in the database.
type Log struct {
	Lines       int // how many lines of the log were about the audit
	first, last int64
	rows        map[int64][]Sum // by number; more than one if the log contradicts itself
}

// longestLine bounds a line of the log. Longer ones are not the audit's.
const longestLine = 64 << 10

// ReadLog reads the log of a node, or of several in any order, as text or JSON. Lines about other things are skipped, and so is
// what a collector of logs has put before each line.
func ReadLog(from io.Reader) (*Log, error) {
	log := &Log{rows: map[int64][]Sum{}}
	lines := bufio.NewReaderSize(from, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
		}
		log.read(line)
		if errors.Is(err, io.EOF) {
			return log, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
	}
}

// logLine is a line that [Writer] has logged.
type logLine struct {
	Message string `json:"msg"`
	N       int64  `json:"n"`
	Hash    *Sum   `json:"hash"`
	Commit  string `json:"commit"`
}

func (l *Log) read(line []byte) {
	if !bytes.Contains(line, []byte(rowMessage)) {
		return
	}
	one, ok := parseJSON(line)
	if !ok {
		one = parseText(line)
	}
	if one.Message != rowMessage && one.Message != headMessage || one.Hash == nil || one.N < 1 || one.Commit != "" {
		return // what may not have been committed proves nothing
	}
	l.Lines++
	if l.first == 0 || one.N < l.first {
		l.first = one.N
	}
	l.last = max(l.last, one.N)
	if !slices.Contains(l.rows[one.N], *one.Hash) {
		l.rows[one.N] = append(l.rows[one.N], *one.Hash)
	}
}

func parseJSON(line []byte) (one logLine, ok bool) {
	_, object, found := bytes.Cut(line, []byte("{"))
	if !found {
		return one, false
	}
	err := json.Unmarshal(append([]byte("{"), object...), &one)
	return one, err == nil
}

// parseText reads key=value pairs. It reads each from its beginning, so that a value, which may be a stranger's, can't pass
// for another pair.
func parseText(line []byte) (one logLine) {
	for rest := string(bytes.TrimSpace(line)); rest != ""; {
		end := 0
		for end < len(rest) && rest[end] != '=' && rest[end] != ' ' {
			end++
		}
		key := rest[:end]
		if end == len(rest) || rest[end] == ' ' { // not ours
			rest = rest[min(end+1, len(rest)):]
			continue
		}
		var value string
		value, rest = cutValue(rest[end+1:])
		switch key {
		case "msg":
			one.Message = value
		case "n":
			one.N, _ = strconv.ParseInt(value, 10, 64)
		case "hash":
			var hash Sum
			if hash.UnmarshalText([]byte(value)) == nil {
				one.Hash = &hash
			}
		case "commit":
			one.Commit = value
		}
	}
	return one
}

// cutValue cuts a value, which may be quoted, off the text that begins with it.
func cutValue(text string) (value, rest string) {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		value, _ = strconv.Unquote(quoted)
		return value, text[len(quoted):]
	}
	end := 0
	for end < len(text) && text[end] != ' ' {
		end++
	}
	return text[:end], text[end:]
}
