// kernels: 1, of its gradient: 1
// A loss for each row of logits that were capped in their own shape, before their leading dimensions became one.
module attributes {cermet.version = 1 : i64} {
  func.func @capped_loss(%logits: tensor<3x5x509xbf16>, %label: tensor<15x1xi64>) -> tensor<15x1xf32> {
    %cap = cermet.constant 30.0 : tensor<3x5x509xbf16>
    %part = cermet.div %logits, %cap : tensor<3x5x509xbf16>
    %bent = cermet.tanh %part : tensor<3x5x509xbf16>
    %capped = cermet.mul %bent, %cap : tensor<3x5x509xbf16>
    %rows = cermet.reshape %capped : tensor<3x5x509xbf16> to tensor<15x509xbf16>
    %wide = cermet.cast %rows : tensor<15x509xbf16> to tensor<15x509xf32>
    %max = cermet.reduce_max %wide : tensor<15x509xf32> to tensor<15x1xf32>
    %maxb = cermet.broadcast %max : tensor<15x1xf32> to tensor<15x509xf32>
    %shifted = cermet.sub %wide, %maxb : tensor<15x509xf32>
    %e = cermet.exp %shifted : tensor<15x509xf32>
    %sum = cermet.reduce_sum %e : tensor<15x509xf32> to tensor<15x1xf32>
    %log = cermet.log %sum : tensor<15x1xf32>
    %logb = cermet.broadcast %log : tensor<15x1xf32> to tensor<15x509xf32>
    %logp = cermet.sub %shifted, %logb : tensor<15x509xf32>
    %column = cermet.iota 1 : tensor<15x509xi64>
    %labelb = cermet.broadcast %label : tensor<15x1xi64> to tensor<15x509xi64>
    %here = cermet.compare "eq", %column, %labelb : tensor<15x509xi64> to tensor<15x509xi1>
    %zero = cermet.constant 0.0 : tensor<15x509xf32>
    %mine = cermet.select %here, %logp, %zero : tensor<15x509xi1>, tensor<15x509xf32>
    %picked = cermet.reduce_sum %mine : tensor<15x509xf32> to tensor<15x1xf32>
    %loss = cermet.neg %picked : tensor<15x1xf32>
    return %loss : tensor<15x1xf32>
  }
}
