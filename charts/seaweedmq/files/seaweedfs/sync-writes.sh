# Makes the running SeaweedFS sync each file of a bucket before it acknowledges it. The container is not ready before this
# has ended. If it fails, the container is started again.
run() {
  printf '%s\n' "$1" | timeout 20 weed shell -master=127.0.0.1:9333 -filer=127.0.0.1:8888 2>/dev/null
}
attempts=0
until run 'fs.configure' | grep -q '"fsync": *true'; do
  if [ "$attempts" -ge 300 ]; then
    echo 'SeaweedFS did not accept the setting `fs.configure -locationPrefix=/buckets/ -fsync=true`.' >&2
    exit 1
  fi
  attempts=$((attempts + 1))
  run 'fs.configure -locationPrefix=/buckets/ -fsync=true -apply' >/dev/null
  sleep 0.2
done
