#!/usr/bin/env bash
# run.sh FOLDER: the measurements of this recipe on the GPU of this machine, as JSON in FOLDER.
set -euo pipefail
out=$1
mkdir -p "$out"
bench() { # NAME MODEL OPTIONS...
    local name=$1 model=$2
    shift 2
    echo "== $name"
    rlt-hw bench --model "$model" --dtype bfloat16 --repeats 3 "$@" --json >"$out/$name.json"
}
long=(--load-format dummy --input-len 1024 --output-len 128)
bench ouro Ouro-1.4B "${long[@]}" --batch 1,32,128
bench nanbeige Nanbeige4.2-3B "${long[@]}" --batch 1,32
bench huginn Huginn-0125 "${long[@]}" --batch 1,32
bench adaptive Ouro-1.4B "${long[@]}" --batch 1,32 --decode-steps 192 --compare "" exit_threshold=0.7
bench adaptive-demo demo:ouro --batch 1,32 --decode-steps 192 --compare "" exit_threshold=0.5
bench invariant Ouro-1.4B "${long[@]}" --batch 1,32 --compare "" batch_invariant=true
