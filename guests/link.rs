// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the build scripts of all architectures tell cargo.

/// Hands the linker the script `link.ld` of the package and further arguments, for a target without an operating system.
pub fn link(arguments: &[&str]) {
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../link.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // A copy in OUT_DIR: of this path alone cargo keeps track when the checkout moves.
    let script = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR") + "/link.ld";
    std::fs::copy("link.ld", &script).expect("OUT_DIR can be written");
    for argument in arguments {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
