// Package cluster runs real nodes for tests: processes of the getwork binary, on free ports of the loopback address,
// that can be killed, frozen and started again.
//
//	func TestMain(m *testing.M) {
//		code := schematest.Main(m)
//		cluster.Clean()
//		os.Exit(code)
//	}
//
//	func TestTwoNodes(t *testing.T) {
//		nodes := cluster.Start(t, 2, cluster.Options{DatabaseURL: schematest.URL(t)})
//		oliver := nodes[0].Client("oliver")
//		answer, err := oliver.GetWork(t.Context(), "verify", 3)
//		…
//	}
//
// No node outlives its test or the test binary, even if the node is frozen and the binary is killed with -9.
package cluster
