// ask: compile sm_90
// status: 2
// error: graph:4:1: the module has 0 operations, expected one func.func, and behind it private ones only
module attributes {cermet.version = 1 : i64} {
}
