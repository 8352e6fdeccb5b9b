// ask: compile sm_90
// status: 2
// error: graph:1:1: expected one `module attributes {cermet.version = 1 : i64} { ... }` and nothing beside it
