# Starts SeaweedFS with the given flags, so that what it acknowledged survives a power failure. Its data is in the current
# folder.
set -eu

if [ -e filerldb2/00/CURRENT ] && [ ! -e filer.db ]; then
  # This data was written by a release of the chart that kept metadata in LevelDB, so it continues there.
  echo 'WARNING: metadata stays in LevelDB, which SeaweedFS never syncs: a power failure can lose acknowledged files.' >&2
else
  # SQLite syncs its write-ahead log at every commit. SeaweedFS cannot do that with LevelDB, its default.
  export WEED_LEVELDB2_ENABLED=false WEED_SQLITE_ENABLED=true
  export WEED_SQLITE_DBFILE='filer.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)'
fi

# SeaweedFS syncs the volumes (*.dat), but never their indexes. After a power failure an index may be shorter than its
# volume, and SeaweedFS does not find what is missing in it. It rebuilds an index that is not there.
rm -f -- *.idx *.sdx

# S3 listens on all addresses, everything else on loopback. A kernel without IPv6 has no `::`.
all=::
[ -e /proc/net/if_inet6 ] || all=0.0.0.0

exec weed server -dir=. -ip=127.0.0.1 -ip.bind=127.0.0.1 -filer -s3 -s3.ip.bind="$all" -volume.max=0 \
  -master.volumeSizeLimitMB=128 "$@"
