package patroni

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePorts returns n free ports of the loopback address. They are below those that the kernel uses for outgoing
// connections, so that a killed host finds its own ports free when it comes back.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 10_000 + rand.IntN(22_000)
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		defer l.Close() // after all are found, so that none is found twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("too few free ports between 10000 and 32000")
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
