#!/bin/sh
# launch.sh CCACHE COMPILER ARGUMENT...: the compiler behind ccache; precompiled headers by itself, since ccache was seen
# to answer for one with what an older header had made. A file that uses one is found again only with these settings.
cache=$1
shift
case " $* " in
*.gch\ *) exec "$@" ;;
esac
CCACHE_SLOPPINESS=pch_defines,time_macros exec "$cache" "$@"
