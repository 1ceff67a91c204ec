// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Link arguments of the bare-metal image.

fn main() {
    println!("cargo::rerun-if-changed=link.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // A copy in OUT_DIR: of this path alone cargo keeps track when the checkout moves.
    let script = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR") + "/link.ld";
    std::fs::copy("link.ld", &script).expect("OUT_DIR can be written");
    println!("cargo::rustc-link-arg-bins=-T{script}");
    // -znorelro: .got and .data.rel.ro lie where the script puts them; the boot code applies the relocations.
    for argument in ["-pie", "--no-dynamic-linker", "-znotext", "-znorelro", "-zmax-page-size=4096"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
