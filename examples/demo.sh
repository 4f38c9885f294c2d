#!/usr/bin/env bash
# The whole service once: server, job, live progress, pull into an environment without a compiler, comparison.
# Called by `make demo` with the folders of two environments: one that tunes, one that only runs.
set -euo pipefail
tuning=$1 client=$2 place=build/demo
mkdir -p "$place"

"$tuning/dietcode" serve --port 0 --data-dir "$place/data" 2> "$place/serve.log" &
server=$!
trap 'kill $server 2> /dev/null || true; wait $server || true' EXIT
for _ in $(seq 300); do
  DIETCODE_SERVER=$(sed -n 's/^dietcode: serving \(http[^,]*\),.*/\1/p' "$place/serve.log")
  if [ -n "$DIETCODE_SERVER" ]; then break; fi
  kill -0 $server 2> /dev/null || { cat "$place/serve.log" >&2; exit 1; }
  sleep 0.1
done
export DIETCODE_SERVER DIETCODE_TRUST="$PWD/$place/trust" # each run has another port: no pins in the user's settings
echo "The server is at $DIETCODE_SERVER (its page shows the job too)."

job=$("$tuning/dietcode" submit examples/bert-dense.yaml | tail -n 1)
"$tuning/dietcode" resume "$job" > "$place/resume.log" 2>&1 || true # where an earlier demo was killed
"$tuning/dietcode" watch "$job"
"$tuning/dietcode" show "$job"

# The rest runs where no compiler is.
export PATH="$client:/usr/bin:/bin"
python -c 'import importlib.util as u; assert u.find_spec("tvm") is None, "a compiler is installed here"'
dietcode pull bert-dense -o "$place/bert-dense" --lock "$place/dietcode.lock"
dietcode inspect "$place/bert-dense"
echo
echo "The library in an environment without a compiler, beside NumPy:"
dietcode bench "$place/bert-dense" --vs numpy --instances 24
if "$tuning/python" -c 'import torch' 2> /dev/null; then
  echo
  echo "Beside PyTorch (eager; oneDNN with a prepacked weight):"
  "$tuning/dietcode" bench "$place/bert-dense" --vs torch --instances 12
else
  echo
  echo "For the table beside PyTorch: make demo EXTRAS=server,dev,bench"
fi

# What a user types next. The library is signed with this server's key, which only the demo's folder trusts.
lines="export DIETCODE_TRUST=$DIETCODE_TRUST
$client/python -c 'import dietcode, numpy as np; lib = dietcode.load(\"$place/bert-dense\"); \
x, w = np.ones((16 * 37, 768), \"float32\"), np.ones((2304, 768), \"float32\"); \
print(lib, lib(X=x, W=lib.pack(W=w)), sep=\"\\n\")'"
echo
echo "To go on by yourself, paste these two lines (T = 37 is one of the lengths that it serves):"
echo
echo "$lines"
echo
bash -c "$lines"
