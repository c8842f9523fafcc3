#!/bin/bash
# node-init.sh FOLDER NAME CGROUP ADDRESS BIN KUBECONFIG: the first process of a node's namespaces.
# It ends, and everything with it, when one of the three daemons ends.
set -eu
folder=$1 name=$2 cgroup=$3 address=$4 bin=$5 kubeconfig=$6
export PATH=$bin:$PATH
mount --make-rshared /
mount --bind "$folder/varlog" /var/log                  # /var/log/pods, /var/log/containers
mkdir -p /var/lib/cni /run/containerd
mount -t tmpfs tmpfs /run/containerd
mount --bind "$folder/varlibcni" /var/lib/cni
for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd unified; do
	[ -d "/sys/fs/cgroup/$controller" ] && mkdir -p "/sys/fs/cgroup/$controller/$cgroup"
done
containerd --config "$folder/containerd.toml" >>"$folder/log/containerd.log" 2>&1 &
until [ -e "$folder/images-loaded" ]; do sleep 0.1; done
kubelet --config "$folder/kubelet.yaml" --kubeconfig "$kubeconfig" --root-dir "$folder/kubelet" \
	--hostname-override "$name" --node-ip "$address" >>"$folder/log/kubelet.log" 2>&1 &
kube-proxy --config "$folder/proxy.yaml" >>"$folder/log/kube-proxy.log" 2>&1 &
wait -n
