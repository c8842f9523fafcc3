# Makes the running SeaweedFS sync each file of a bucket before it acknowledges it, and creates the bucket $1. The container is
# not ready before this has ended. If it fails, the container is started again.
run() {
  printf '%s\n' "$1" | timeout 20 weed shell -master=127.0.0.1:9333 -filer=127.0.0.1:8888 2>/dev/null
}
# try WHAT: repeats `set_up` until `is_set_up`.
try() {
  attempts=0
  until is_set_up; do
    if [ "$attempts" -ge 300 ]; then
      echo "SeaweedFS did not accept $1." >&2
      exit 1
    fi
    attempts=$((attempts + 1))
    set_up
    sleep 0.2
  done
}
is_set_up() { run 'fs.configure' | grep -q '"fsync": *true'; }
set_up() { run 'fs.configure -locationPrefix=/buckets/ -fsync=true -apply' >/dev/null; }
try 'the setting `fs.configure -locationPrefix=/buckets/ -fsync=true`'
is_set_up() { run 's3.bucket.list' | grep -q "^ *$bucket[[:space:]]"; }
set_up() { run "s3.bucket.create -name $bucket" >/dev/null; }
bucket=$1
try "the bucket $bucket"
