// What -cermet-check refuses beyond verification: a graph is one function over tensors with named dimensions.
// RUN: cermet-opt %s -split-input-file -verify-diagnostics -cermet-check

// expected-error @+1 {{the module has no cermet.version, expected `cermet.version = 1 : i64`}}
module {
  func.func @f() { return }
}

// -----

module attributes {cermet.version = 1 : i64} {
  // expected-error @+1 {{argument 0 (arg0) 'tensor<?x4xf32>' has 1 unnamed dimensions}}
  func.func @f(%x: tensor<?x4xf32>) { return }
}

// -----

// expected-error @+1 {{the module has 2 operations, expected one func.func, and behind it private ones only}}
module attributes {cermet.version = 1 : i64} {
  func.func @f() { return }
  func.func @g() { return }
}
