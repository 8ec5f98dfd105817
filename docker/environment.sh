#!/bin/sh
# Writes the environment of compose.yaml, docker/.env, readable by its owner alone:  sh docker/environment.sh ADDRESS
# ADDRESS is an IPv4 address of this host that the pods of every cluster reach. Its passwords are new each time, so an
# existing file is left alone: edit it.
set -eu
umask 077
address=${1:-}
file=$(dirname "$0")/.env

refuse() {
    echo "environment.sh: $1" >&2
    exit 2
}

octet='(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
case $address in
    *[!0-9.]* | 0.* | 127.*) false ;;  # 0.0.0.0 would publish stores and registries on every interface
    *) echo "$address" | grep -Eqx "$octet(\.$octet){3}" ;;
esac || refuse "expected an IPv4 address of this host that pods reach, got '$address'"
[ ! -e "$file" ] || refuse "$file exists, and its passwords are in use; edit it, or remove it together with the volumes"

new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
cat >"$new" <<ADDRESSES
# The stores and registries listen on this address of the host ...
PUBLISH_ADDRESS=$address
# ... and Airflow and the pods reach them here. Behind a proxy with TLS: https, its name and port. Elsewhere altogether,
# as in a cloud: its endpoint, and its keys in place of the passwords below.
ONPREM_STORE_ENDPOINT=http://$address:8333
CLOUD_STORE_ENDPOINT=http://$address:8334
ONPREM_REGISTRY_SCHEME=http
ONPREM_REGISTRY_HOST=$address
ONPREM_REGISTRY_PORT=5000
CLOUD_REGISTRY_SCHEME=http
CLOUD_REGISTRY_HOST=$address
CLOUD_REGISTRY_PORT=5001
# Mounted read-only; relative to docker/.
CONFIG_DIR=../include/config
JOBS_DIR=../include/jobs
DAGS_DIR=../dags
ADDRESSES
for name in POSTGRES_PASSWORD AIRFLOW_API_SECRET AIRFLOW_JWT_SECRET \
    ONPREM_MOVER_SECRET ONPREM_PODS_SECRET ONPREM_PUBLIC_SECRET ONPREM_PUBLIC_PODS_SECRET ONPREM_REMOTE_SECRET \
    ONPREM_CACHE_SECRET ONPREM_REGISTRY_PASSWORD ONPREM_REGISTRY_SECRET \
    CLOUD_MOVER_SECRET CLOUD_PODS_SECRET CLOUD_PUBLIC_SECRET CLOUD_PUBLIC_PODS_SECRET CLOUD_REMOTE_SECRET \
    CLOUD_CACHE_SECRET CLOUD_REGISTRY_PASSWORD CLOUD_REGISTRY_SECRET; do
    echo "$name=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
done >>"$new"
echo "AIRFLOW_FERNET_KEY=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')" >>"$new"
mv "$new" "$file"
