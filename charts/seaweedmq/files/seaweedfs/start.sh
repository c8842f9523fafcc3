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

exec weed mini -dir=. "$@"
