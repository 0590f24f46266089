#!/bin/sh
# The packages of Debian 12 that tests/slurm needs; as root. Does nothing where they are.
set -eu
packages="slurm-wlm munge libpmix2 iproute2"
dpkg-query --show $packages > /dev/null 2>&1 && exit
export DEBIAN_FRONTEND=noninteractive
options="-o Acquire::Retries=2 -o DPkg::Lock::Timeout=120"
install="apt-get -qq $options install -y --no-install-recommends $packages"
$install || { apt-get -qq update && $install; }
