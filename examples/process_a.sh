#!/bin/sh
# Process A: publishes an event and prints its id.
#
#     HEADRACE_URL=http://127.0.0.1:8080 examples/process_a.sh
#
# Where tokens are needed: HEADRACE_TOKEN. A request whose answer was lost is sent again with the same
# Idempotency-Key, so that there is one event whatever happens.
set -eu

url=${HEADRACE_URL:-http://127.0.0.1:8080}
key=${IDEMPOTENCY_KEY:-report-$(date +%s)-$$}

answer=$(curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused --max-time 30 \
  ${HEADRACE_TOKEN:+--header "Authorization: Bearer $HEADRACE_TOKEN"} \
  --header "Content-Type: application/json" \
  --header "Idempotency-Key: $key" \
  --data '{
    "title": "Batch Report Generation",
    "tags": "reporting,batch",
    "payload": {"report_type": "sales", "month": "2025-12"}
  }' \
  "$url/events${NAMESPACE:+?namespace=$NAMESPACE}")

printf '%s\n' "$answer" | sed 's/^{"id":\([0-9]*\).*/\1/'
