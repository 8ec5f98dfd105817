#!/bin/sh
# Prints new passwords for compose.yaml:  sh docker/passwords.sh > docker/.env
set -eu
umask 077
for name in POSTGRES_PASSWORD AIRFLOW_API_SECRET AIRFLOW_JWT_SECRET \
    ONPREM_MOVER_SECRET ONPREM_PODS_SECRET ONPREM_REGISTRY_PASSWORD ONPREM_REGISTRY_SECRET \
    CLOUD_MOVER_SECRET CLOUD_PODS_SECRET CLOUD_REGISTRY_PASSWORD CLOUD_REGISTRY_SECRET; do
    echo "$name=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
done
echo "AIRFLOW_FERNET_KEY=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_')"
