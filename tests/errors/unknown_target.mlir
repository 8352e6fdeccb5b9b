// ask: compile sm_70
// status: 3
// error: target `sm_70` is not known; expected one of sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 host:x86-64-v2 host:x86-64-v3 host:x86-64-v4
module attributes {cermet.version = 1 : i64} {
  func.func @f(%x: tensor<?x8xbf16, #cermet.symbols<["r0"]>>) -> (tensor<?x8xbf16, #cermet.symbols<["r0"]>>) {
    %y = cermet.neg %x : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
    return %y : tensor<?x8xbf16, #cermet.symbols<["r0"]>>
  }
}
