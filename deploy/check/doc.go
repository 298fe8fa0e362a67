// Package check has no code but tests: of what deploy/release makes, and of the files with which people run it. Each test uses the
// tool that a user's machine would use: dpkg, rpm, lintian, systemd, buildah, the types of Kubernetes' API, the loader of Compose.
//
//	go -C deploy/check test ./...
package check
