package story

// standIns are the programs that would change the machine that the test runs on, or reach another. All others are real.
var standIns = map[string]string{
	// What Debian's packages bring is here already; getwork's brings an empty file of settings.
	"apt-get": `
[ "$1 $2" = "install -y" ] || exit 2
shift 2
for package; do
	case $package in
	postgresql | openssl | curl | nginx | prometheus | cron | postgresql-common | patroni | etcd-server | python3-etcd) ;;
	./getwork_*_amd64.deb)
		[ -f "$package" ] || exit 2
		mkdir -p "$ROOT/etc/getwork"
		cp "$SOURCE/deploy/package/getwork.env" "$ROOT/etc/getwork/"
		chmod 640 "$ROOT/etc/getwork/getwork.env"
		ln -sf "$GETWORK" "$ROOT/usr/bin/getwork"
		;;
	*) echo "the test knows no package $package" >&2; exit 2 ;;
	esac
done`,
	"systemctl": `exec curl -sS --fail-with-body --data-binary "$*" "$CONTROL/$MACHINE"`,
	// The test's server belongs to the test's user or, for root, to another.
	"runuser": `
[ "$1 $2 $3" = "-u postgres --" ] || exit 2
shift 3
export PGHOST="$SOCKETS" PGPORT="$DBPORT" PGUSER=postgres
[ -z "$DBOWNER" ] || exec setpriv --reuid="$DBOWNER" --regid="$DBOWNER" --clear-groups -- "$@"
exec "$@"`,
	// Another machine's files are in another folder, which settings name.
	"scp": `
to=${!#}; set -- "${@:1:$#-1}"
at=${to#root@}; root=$MACHINES/${at%%:*}; to=${at#*:}
to=${to#"$ROOT"}
case $to in /*) to=$root$to ;; *) to=$root/root/$to ;; esac
for file; do
	cp -p "$file" "$to"
	[ -d "$to" ] && copy=$to/${file##*/} || copy=$to
	case $copy in *.env | *.yml) sed -i "s#$ROOT/#$root/#g" "$copy" ;; esac
done`,
	"ssh": `
at=${1#root@}; root=$MACHINES/$at; shift
typed=${*//"$ROOT"/$root}
export PATH=${PATH//"$ROOT"/$root} HOME=$root/root MACHINE=$at ROOT=$root
cd
exec bash -ec "$typed"`,
	// There is no group getwork here.
	"install": `
args=()
while [ $# -gt 0 ]; do
	case $1 in
	-g) [ "$2" = getwork ] && shift 2 ;;
	-o) [ "$2" = postgres ] && { [ -z "$DBOWNER" ] || args+=(-o "$DBOWNER"); } && shift 2 ;;
	*) args+=("$1"); shift ;;
	esac
done
exec /usr/bin/install "${args[@]}"`,
	"systemd-sysusers": `[ -f "$ROOT/etc/sysusers.d/$1" ]`,
	"chown": `
[ "$1" = postgres ] || exit 2
shift
[ -z "$DBOWNER" ] || exec /usr/bin/chown "$DBOWNER" "$@"
ls "$@" >/dev/null`,
	"rm": `
for file; do
	case $file in -* | "$ROOT"/*) ;; *) echo "not of this machine: $file" >&2; exit 2 ;; esac
done
exec /usr/bin/rm "$@"`,
	"chgrp": `[ "$1" = getwork ] && shift && ls "$@" >/dev/null`,
	"nginx": `exec "$PROXY" -p "$ROOT/var" -e stderr -c "$ROOT/etc/nginx/nginx.conf" -q "$@"`,
}
