package deploy

import (
	"archive/tar"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"getwork/cmd/lab"
)

// released builds the release of a clone of HEAD, in a folder of its own; so a tree that is being worked on can be checked, too. The
// clone is at another place each time, and what may be reused of a build before is in cache.
func released(t *testing.T, cache, archs string) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "git", "clone", "--quiet", lab.Path(""), dir+"/clone")
	c := exec.Command(dir + "/clone/deploy/release")
	c.Env = append(os.Environ(), "DIST="+dir+"/dist", "ARCHS="+archs)
	if cache != "" {
		c.Env = append(c.Env, "GOCACHE="+cache)
	}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir + "/dist"
}

// TestRelease makes a release twice, and reads the first.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("a release takes a minute or two")
	}
	dist := released(t, "", "amd64 arm64")
	t.Run("the same again", func(t *testing.T) { again(t, dist) })
	t.Run("binaries", func(t *testing.T) { binaries(t, dist) })
	t.Run("packages", func(t *testing.T) { packages(t, dist) })
	t.Run("installed", func(t *testing.T) { installed(t, one(t, dist, "*_"+runtime.GOARCH+".deb")) })
	t.Run("image", func(t *testing.T) { image(t, dist) })
	t.Run("SBOM", func(t *testing.T) { sbom(t, dist) })
}

// A release replaces an earlier one, and deletes nothing else.
func TestReleaseKeepsOthersFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "SHA256SUMS")
	if err := os.WriteFile(file, []byte(strings.Repeat("0", 64)+"  holiday.jpg\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(lab.Path("deploy/release"))
	c.Env = append(os.Environ(), "DIST="+dir)
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "name another folder in DIST") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// again makes the release of this machine's kind again, in another folder and without the compiler's cache: not a byte differs.
func again(t *testing.T, first string) {
	second := released(t, t.TempDir(), runtime.GOARCH)
	files, err := os.ReadDir(second)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 6 { // binary, SBOM, deb, rpm, image, checksums
		t.Errorf("there are %d files", len(files))
	}
	for _, f := range files {
		if f.Name() == "SHA256SUMS" {
			continue
		}
		if read(t, filepath.Join(first, f.Name())) != read(t, filepath.Join(second, f.Name())) {
			t.Errorf("%s differs from build to build", f.Name())
		}
	}
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = first
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// one returns the only file that matches.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v", pattern, found, err)
	}
	return found[0]
}

// The binaries need no library and no loader, and say which commit they are of.
func binaries(t *testing.T, dist string) {
	head := strings.TrimSpace(output(t, "git", "rev-parse", "HEAD"))
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		file := one(t, dist, "getwork_*_linux_"+arch)
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Machine != machine || f.Section(".interp") != nil || f.Section(".dynamic") != nil {
			t.Errorf("%s is for %s, and needs a loader: %v", file, f.Machine, f.Section(".interp") != nil)
		}
		facts := output(t, "go", "version", "-m", file)
		for _, want := range []string{"CGO_ENABLED=0", "-trimpath=true", "vcs.revision=" + head, "vcs.modified=false"} {
			if !strings.Contains(facts, want) {
				t.Errorf("%s lacks %s:\n%s", file, want, facts)
			}
		}
		if strings.Contains(read(t, file), filepath.Dir(dist)) {
			t.Errorf("%s names the folder that it was built in", file)
		}
	}
	version := output(t, one(t, dist, "getwork_*_linux_"+runtime.GOARCH), "version")
	if !strings.Contains(version, head[:12]) {
		t.Errorf("getwork version says %q, and the commit is %s", version, head)
	}
}

// Debian's own linter finds nothing to warn of, mandoc nothing in the manual page, and the rpm has what the deb has.
func packages(t *testing.T, dist string) {
	for _, arch := range []string{"amd64", "arm64"} {
		deb := one(t, dist, "*_"+arch+".deb")
		if out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", deb).CombinedOutput(); err != nil {
			t.Errorf("lintian: %v\n%s", err, out)
		}
		var files []string
		for line := range strings.Lines(output(t, "dpkg-deb", "--contents", deb)) {
			if fields := strings.Fields(line); !strings.HasSuffix(fields[5], "/") {
				files = append(files, fields[0]+" "+strings.TrimPrefix(fields[5], "."))
			}
		}
		rpm := one(t, dist, "*."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]+".rpm")
		if out := output(t, "rpm", "--checksig", "--nosignature", rpm); !strings.Contains(out, "OK") {
			t.Error(out)
		}
		listed := output(t, "rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES} %{FILEFLAGS:fflags}\n]", rpm)
		for _, want := range []string{"-rwxr-xr-x /usr/bin/getwork", "-rw-r----- /etc/getwork/getwork.env", "-rw-r--r-- /usr/lib/sysusers.d/getwork.conf",
			"-rw-r--r-- /usr/share/man/man1/getwork.1.gz", "-rw-r--r-- /usr/share/bash-completion/completions/getwork", "-rw-r--r-- /usr/share/fish/vendor_completions.d/getwork.fish",
			"-rw-r--r-- /lib/systemd/system/getwork.service", "-rw-r--r-- /usr/share/zsh/vendor-completions/_getwork"} {
			if !slices.Contains(files, want) {
				t.Errorf("the deb lacks %s:\n%s", want, strings.Join(files, "\n"))
			}
			want = strings.NewReplacer( // where the other distributions have it
				" /lib/", " /usr/lib/", "vendor-completions", "site-functions").Replace(want)
			if !strings.Contains(listed, want+" ") {
				t.Errorf("the rpm lacks %s:\n%s", want, listed)
			}
		}
		if !strings.Contains(listed, "/etc/getwork/getwork.env cn") {
			t.Errorf("an upgrade of the rpm would replace the settings:\n%s", listed)
		}
	}
}

// The package is installed and removed by dpkg on a copy of this machine's file system, which is thrown away. It needs root, or leave
// to make name spaces.
func installed(t *testing.T, deb string) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(`set -eu
mount -t tmpfs none /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay none -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/root
cp "$1" /mnt/root/getwork.deb
mount -t proc none /mnt/root/proc
mount -t tmpfs none /mnt/root/run
exec chroot /mnt/root sh -eu <<'END'
dpkg -i /getwork.deb
getent passwd getwork
[ "$(stat -c '%a %U %G' /etc/getwork /etc/getwork/getwork.env | tr '\n' ' ')" = '750 root getwork 640 root getwork ' ]
echo 'GETWORK_AUTH=token' >>/etc/getwork/getwork.env
systemd-analyze verify --man=yes /lib/systemd/system/getwork.service
man getwork | grep -q 'getwork task create'
getwork --version
status=0; getwork serve || status=$?; [ $status = 2 ] # no database yet; systemd does not start it again
bash -c '. /usr/share/bash-completion/completions/getwork; complete -p getwork'
dpkg -i /getwork.deb # again, as an upgrade: the settings stay
grep -q '^GETWORK_AUTH=token' /etc/getwork/getwork.env
dpkg -r getwork
[ -e /etc/getwork/getwork.env ]
[ ! -e /usr/bin/getwork ]
dpkg -P getwork
[ ! -e /etc/getwork ]
END
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--map-root-user", "sh", script, deb)
	if os.Geteuid() == 0 {
		c = exec.Command("unshare", "--mount", "--pid", "--fork", "sh", script, deb)
	}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// The image has one file, which runs as nobody, and Docker's form, because the health command exists there alone.
func image(t *testing.T, dist string) {
	for _, arch := range []string{"amd64", "arm64"} {
		files := untar(t, read(t, one(t, dist, "getwork_*_image_"+arch+".tar")))
		var manifest []struct {
			Config string
			Layers []string
		}
		decode(t, files["manifest.json"], &manifest)
		var c struct {
			Architecture, OS string
			Config           struct {
				User, StopSignal string
				Entrypoint, Cmd  []string
				Healthcheck      struct{ Test []string }
				Labels           map[string]string
			}
		}
		decode(t, files[manifest[0].Config], &c)
		if c.Architecture != arch || c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/getwork"}) ||
			!slices.Equal(c.Config.Healthcheck.Test, []string{"CMD", "/getwork", "health"}) || c.Config.Labels["org.opencontainers.image.revision"] == "" {
			t.Errorf("%s: %+v", arch, c)
		}
		var all []string
		for _, layer := range manifest[0].Layers {
			for name, content := range untar(t, files[layer]) {
				all = append(all, name)
				if name == "getwork" && content != read(t, one(t, dist, "getwork_*_linux_"+arch)) {
					t.Errorf("%s: the image has another binary", arch)
				}
			}
		}
		if !slices.Equal(all, []string{"getwork"}) {
			t.Errorf("%s: the image has %v", arch, all)
		}
		store := t.TempDir()
		output(t, "buildah", "--root", store+"/root", "--runroot", store+"/run", "--storage-driver", "vfs", "pull", "--quiet",
			"docker-archive:"+one(t, dist, "getwork_*_image_"+arch+".tar")) // it is read as an image
	}
}

func untar(t *testing.T, archive string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(b)
	}
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
}

// The SBOM names what the binary says that it is made of, no more and no less.
func sbom(t *testing.T, dist string) {
	for _, arch := range []string{"amd64", "arm64"} {
		file := one(t, dist, "getwork_*_linux_"+arch)
		var bom struct {
			BomFormat  string
			Components []struct{ Name, Version, Purl string }
		}
		decode(t, read(t, file+".cdx.json"), &bom)
		var got, want []string
		for _, c := range bom.Components {
			if c.Name != "std" {
				got = append(got, c.Name+" "+c.Version)
			}
			if !strings.HasPrefix(c.Purl, "pkg:golang/") {
				t.Errorf("%s has the address %q", c.Name, c.Purl)
			}
		}
		for line := range strings.Lines(output(t, "go", "version", "-m", file)) {
			if fields := strings.Fields(line); fields[0] == "dep" {
				want = append(want, fields[1]+" "+fields[2])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if bom.BomFormat != "CycloneDX" || len(want) < 10 || !slices.Equal(got, want) {
			t.Errorf("%s: the SBOM has\n%v\nand the binary\n%v", arch, got, want)
		}
	}
}

// mandoc, which is stricter than groff, finds nothing in the manual page.
func TestManualPage(t *testing.T) {
	t.Parallel()
	file, err := program()
	if err != nil {
		t.Fatal(err, file)
	}
	page := filepath.Join(t.TempDir(), "getwork.1")
	if err := os.WriteFile(page, []byte(output(t, file, "__man", "--date", "2026-01-31")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mandoc", "-T", "lint", "-W", "warning", page).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// Without a tag, a release of a later commit has a newer version, for Debian's packages too. The program names the same version if it
// was built by `go build`.
func TestVersionOfACommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	output(t, "git", "clone", "--quiet", "--no-tags", lab.Path(""), dir+"/clone")
	for _, tool := range []string{"go", "nfpm", "cyclonedx-gomod", "buildah"} { // the release says its version, and then finds no compiler
		if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\nexit 9\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	version := func() (version, revision string) {
		c := exec.Command(dir + "/clone/deploy/release")
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+dir, "VERSION=")
		out, err := c.CombinedOutput()
		said := regexp.MustCompile(`-- getwork (\S+), commit ([0-9a-f]{40})`).FindStringSubmatch(string(out))
		if err == nil || said == nil {
			t.Fatalf("%v: %s", err, out)
		}
		return said[1], said[2]
	}
	git := func(args ...string) string {
		return strings.TrimSpace(output(t, "git", append([]string{"-C", dir + "/clone", "-c", "user.name=x", "-c", "user.email=x@x"}, args...)...))
	}
	before, revision := version()
	file, err := program()
	if err != nil {
		t.Fatal(err, file)
	}
	if said := strings.Fields(output(t, file, "version")); said[2] == revision[:12] && said[1] != before {
		t.Errorf("the program is %s, and its release %s", said[1], before)
	}
	seconds, err := strconv.ParseInt(git("log", "-1", "--format=%ct"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(seconds, 0).UTC().Format("20060102150405")
	if !strings.HasSuffix(before, "-dev."+at+".g"+revision[:12]) {
		t.Errorf("%s does not name the commit %s of %s", before, revision, at)
	}
	git("commit", "--quiet", "--allow-empty", "-m", "later", "--date=now")
	after, _ := version()
	for _, versions := range [][2]string{{before, after}, {"0.1.0-dev", before}, {after, "0.1.0"}} {
		older, newer := strings.Replace(versions[0], "-", "~", 1)+"-1", strings.Replace(versions[1], "-", "~", 1)+"-1"
		if err := exec.Command("dpkg", "--compare-versions", older, "lt", newer).Run(); err != nil {
			t.Errorf("%s is not older than %s", older, newer)
		}
	}
	git("tag", "v1.2.3")
	if tagged, _ := version(); tagged != "1.2.3" {
		t.Errorf("with a tag it is %s", tagged)
	}
}
