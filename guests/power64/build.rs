// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands the linker what makes a guest a static ELF file at address zero (see `link.ld`).

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // A copy in OUT_DIR: of this path alone cargo keeps track when the checkout moves.
    let script = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR") + "/link.ld";
    std::fs::copy("link.ld", &script).expect("OUT_DIR can be written");
    for argument in ["--no-pie", "-znorelro", "-zmax-page-size=65536", "--build-id=none"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
