// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker what makes a guest a position-independent flat image (see `link.ld`).

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // A copy in OUT_DIR: of this path alone cargo keeps track when the checkout moves.
    let script = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR") + "/link.ld";
    std::fs::copy("link.ld", &script).expect("OUT_DIR can be written");
    // Without norelro the linker wants the global offset table in a segment of its own.
    for argument in
        ["-pie", "--no-dynamic-linker", "-znotext", "-znorelro", "-zmax-page-size=4096", "--build-id=none"]
    {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
