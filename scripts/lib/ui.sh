# shellcheck shell=bash
# Messages of the scripts. Sourced by setup.sh.

say() { printf '%s\n' "$*"; }
step() { printf '\n==> %s\n' "$*"; }
die() {
  printf '\nerror: %s\n' "$*" >&2
  exit 1
}

# quietly WHAT COMMAND...: runs the command with its output in build/logs, says every 15 seconds that it still runs, and
# shows the end of the output if it fails.
quietly() {
  local what=$1 log start=$SECONDS ticker status=0
  shift
  log=build/logs/$(printf '%s' "$what" | tr -cs '[:alnum:].' '-').log
  mkdir -p build/logs
  say "    $what ..."
  (while sleep 15 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do say "    ... $((SECONDS - start)) s"; done) &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  if [ "$status" -ne 0 ]; then
    tail -n 25 "$log" >&2
    die "$what: failed. All of its output: $log"
  fi
}

# stage NAME COMMAND...: a timed part of a longer check. A failing one ends the script.
stage() {
  local start=$SECONDS
  current_stage=$1
  shift
  step "$current_stage"
  "$@"
  stage_times+=("$(printf '%6d s  %s' $((SECONDS - start)) "$current_stage")")
  current_stage=
}

# To be called before the first stage: tells at the end of the script how long each took, or which one failed.
stages_begin() {
  stage_times=() current_stage=
  trap stages_end EXIT
}

stages_end() {
  local status=$?
  if [ "$status" -eq 0 ] && [ -z "$current_stage" ]; then
    step "Every stage passed"
  else
    step "FAILED: ${current_stage:-before the first stage}"
    [ "$status" -ne 0 ] || status=1  # killed
  fi
  printf '%s\n' ${stage_times+"${stage_times[@]}"} "$(printf '%6d s  altogether' "$SECONDS")"
  exit "$status"
}
