// ask: compile sm_90
// status: 2
// error: graph:4:1: custom op 'hello' is unknown (tried 'builtin.hello' as well)
hello
