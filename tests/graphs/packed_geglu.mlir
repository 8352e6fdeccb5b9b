// kernels: 1, of its gradient: 1
// GeGLU of the halves of one tensor, whose gradient is one tensor again.
!p = tensor<?x11008xbf16, #cermet.symbols<["r0"]>>
!h = tensor<?x5504xbf16, #cermet.symbols<["r0"]>>
module attributes {cermet.version = 1 : i64} {
  func.func @packed_geglu(%packed: !p) -> !h {
    %gate = cermet.slice %packed [0, 0] : !p to !h
    %up = cermet.slice %packed [0, 5504] : !p to !h
    %a = cermet.gelu_tanh %gate : !h
    %y = cermet.mul %up, %a : !h
    return %y : !h
  }
}
