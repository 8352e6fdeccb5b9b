// The CUDA C++ of the program, its forward and its backward is reviewed as a diff of Inputs/dropout.cu. After an intended change:
//     tests/lit/compiler/update.sh BUILD
// RUN: cermet-print-programs %s sm_90 | diff -u %S/Inputs/dropout.cu -
module attributes {cermet.version = 1 : i64} {
  func.func @dropout(%x: tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, %residual: tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, %weight: tensor<1024xbf16>, %seed: tensor<i64>) -> (tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, tensor<?x1024xbf16, #cermet.symbols<["r0"]>>) {
    %wide = cermet.cast %x : tensor<?x1024xbf16, #cermet.symbols<["r0"]>> to tensor<?x1024xf32, #cermet.symbols<["r0"]>>
    %numbers = cermet.random %seed : tensor<i64> to tensor<?x1024xi64, #cermet.symbols<["r0"]>>
    %least = cermet.constant 429496730.0 : tensor<?x1024xi64, #cermet.symbols<["r0"]>>
    %kept = cermet.compare "ge", %numbers, %least : tensor<?x1024xi64, #cermet.symbols<["r0"]>> to tensor<?x1024xi1, #cermet.symbols<["r0"]>>
    %scale = cermet.constant 1.1111111111111112 : tensor<?x1024xf32, #cermet.symbols<["r0"]>>
    %zero = cermet.constant 0.0 : tensor<?x1024xf32, #cermet.symbols<["r0"]>>
    %factor = cermet.select %kept, %scale, %zero : tensor<?x1024xi1, #cermet.symbols<["r0"]>>, tensor<?x1024xf32, #cermet.symbols<["r0"]>>
    %scaled = cermet.mul %wide, %factor : tensor<?x1024xf32, #cermet.symbols<["r0"]>>
    %dropped = cermet.cast %scaled : tensor<?x1024xf32, #cermet.symbols<["r0"]>> to tensor<?x1024xbf16, #cermet.symbols<["r0"]>>
    %y, %sum = cermet.add_rms_norm %dropped, %residual, %weight {eps = 1.0e-6 : f64} : tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, tensor<1024xbf16> to tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, tensor<?x1024xbf16, #cermet.symbols<["r0"]>>
    return %y, %sum : tensor<?x1024xbf16, #cermet.symbols<["r0"]>>, tensor<?x1024xbf16, #cermet.symbols<["r0"]>>
  }
}
