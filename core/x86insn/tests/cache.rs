// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cache of decoded instructions.

use turnstile_x86insn::cache::Cache;

fn code(bytes: &[u8]) -> u128 {
    let mut all = [0xcc; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(all)
}

#[test]
fn what_was_decoded_is_found_by_its_own_bytes() {
    let mut cache = Cache::new();
    let load = code(&[0x8b, 0x40, 0x10]);
    assert!(cache.find(0x1000, 64, load).is_none());
    let operation = cache.decode(0x1000, 64, load, 16).expect("mov eax, [rax+0x10]");
    assert_eq!(cache.find(0x1000, 64, load), Some(&operation));
    assert_eq!(
        cache.find(0x1000, 64, code(&[0x8b, 0x40, 0x10, 0x90])),
        Some(&operation),
        "what follows does not matter"
    );
    assert!(cache.find(0x1000, 64, code(&[0x8b, 0x40, 0x14])).is_none(), "the guest has changed its code");
    assert!(cache.find(0x1000, 32, load).is_none());
    cache.clear();
    assert!(cache.find(0x1000, 64, load).is_none());
}

#[test]
fn an_instruction_needs_all_its_bytes() {
    let mut cache = Cache::new();
    let store = code(&[0xc7, 0x00, 1, 2, 3, 4]);
    assert!(cache.decode(0, 64, store, 5).is_none());
    assert!(cache.decode(0, 64, store, 6).is_some());
}
