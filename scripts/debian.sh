# shellcheck shell=bash
# Packages of Debian and Ubuntu that hold data: fetched with apt-get, installed nowhere; to be sourced after lib.sh.

# fetch_package NAME FOLDER OTHERWISE: sets "package_file" to the newest package of this name in the folder, which is
# fetched if there is none; dies, with what to do otherwise, where it cannot be had.
# shellcheck disable=SC2034 # the caller reads "package_file"
fetch_package() {
  package_file=$(_newest_package "$1" "$2")
  [[ -z $package_file ]] || return 0
  require_command apt-get "it fetches $1 on Debian and Ubuntu. $3"
  log "fetching $1"
  mkdir -p "$2"
  if ! _download_package "$1" "$2"; then
    local remedy="The package list may be missing or old: run 'apt-get update' as root, then this command again."
    if [[ $(id -u) -eq 0 ]]; then
      log "apt-get could not fetch it; updating the package list (apt-get update)"
      apt-get update >>"${work_dir:?}/logs/fetch.log" 2>&1 || true
      remedy='The package list was updated already: the network or the package archive may be out of reach.'
    fi
    if [[ $(id -u) -ne 0 ]] || ! _download_package "$1" "$2"; then
      tail -n 5 "$work_dir/logs/fetch.log" >&2
      die "apt-get download $1 failed (log: $work_dir/logs/fetch.log). $remedy $3"
    fi
  fi
  package_file=$(_newest_package "$1" "$2")
  [[ -n $package_file ]] || die "apt-get download $1 ended well but left no ${1}_*.deb in $2. $3"
}

_newest_package() { # NAME FOLDER
  [[ ! -d $2 ]] || find "$2" -maxdepth 1 -name "$1_*.deb" | sort -V | tail -n 1
}

_download_package() { # NAME FOLDER
  (cd "$2" && apt-get -o Acquire::Retries=3 -o APT::Sandbox::User=root download "$1") >>"$work_dir/logs/fetch.log" 2>&1
}
