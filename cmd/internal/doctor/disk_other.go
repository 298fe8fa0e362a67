//go:build !unix

package doctor

import "errors"

func available(string) (free, total int64, err error) {
	return 0, 0, errors.New("unknown on this system")
}
