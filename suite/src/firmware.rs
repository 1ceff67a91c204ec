// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Firmware at EL3 that offers the workarounds of speculative execution, on a CPU that needs them: the hypervisor finds
//! its calls, makes one on each exit, and no register of the guest is lost though the firmware leaves rubbish in four.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use turnstile::batch::{self, Transcript};
use turnstile::failure::{Context, Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::machine;
use turnstile::qemu::{Boot, as_value};
use turnstile::setup;
use turnstile::setup::qemu::Qemu;

use super::guests;

const NAME: &str = "mitigations-firmware";
/// The CPU: with such firmware it needs one call, and nothing else.
const CPU: &str = "cortex-a72";
const DECIDED: &str = "firmware call 0x80003fff on each exit";
/// Where `guests/arm64/src/bin/firmware.rs` enters the hypervisor, and where QEMU says that the bundle is.
const IMAGE: u64 = 0x4040_0000;
const BUNDLE: u64 = 0x4800_0000;
/// QEMU puts the bundle there with at least so much memory.
const MEMORY: u64 = 512 << 20;
/// What the firmware says at the end, before the number in which it counted.
const COUNTED: &str = "firmware: ";
/// It was told to stop loads that overtake stores.
const BYPASS_STOPPED: u64 = 1 << 63;
/// The self-test exits more often than this; a boot alone does not.
const EXITS: u64 = 10_000;
/// Processor time, as a guard against hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the self-test on such a machine.
pub fn check(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let config = format!("[machine]\ncpu = \"{CPU}\"\n\n{}", guests::selftest("virt", 1, "trapped").config);
    let (mut boot, _) = machine::prepare_text(layout, NAME, &config)?;
    (boot.memory, boot.counted) = (MEMORY, true);
    let tree = device_tree(&boot, qemu, &layout.bundles().join(NAME).join("machine.dtb"))?;
    setup::images::guests(layout, Isa::Arm64)?;
    with_firmware(&mut boot, &layout.guest(Isa::Arm64, "firmware"), &tree);
    let transcript = batch::run(&boot, &qemu.path, LIMIT, |_| {})?;
    judge(&transcript).map_err(|what| Failure::failed(what).details(transcript.all()))
}

/// Writes the device tree that QEMU would give the hypervisor without firmware: it names PSCI and the bundle.
fn device_tree(boot: &Boot, qemu: &Qemu, file: &Path) -> Result<PathBuf> {
    let dump = format!("dumpdtb={}", as_value(file));
    let output = Command::new(&qemu.path).args(boot.arguments()).args(["-machine", &dump]).output();
    output.context(|| format!("cannot start {}", qemu.path.display()))?;
    let mut tree = fs::read(file).context(|| format!("QEMU wrote no {}", file.display()))?;
    trim(&mut tree).ok_or_else(|| Failure::failed(format!("{} is no device tree", file.display())))?;
    fs::write(file, tree).context(|| format!("cannot write {}", file.display()))?;
    Ok(file.to_path_buf())
}

/// Cuts the free space off (Devicetree Specification 5.2): QEMU makes a tree that it loads larger still.
fn trim(tree: &mut Vec<u8>) -> Option<()> {
    let word =
        |at: usize| -> Option<u32> { Some(u32::from_be_bytes(tree.get(at..at + 4)?.try_into().ok()?)) };
    let (structure, strings) = (word(8)?.checked_add(word(36)?)?, word(12)?.checked_add(word(32)?)?);
    let end = structure.max(strings);
    tree.get_mut(4..8)?.copy_from_slice(&end.to_be_bytes());
    tree.truncate(end as usize);
    Some(())
}

/// Puts the firmware into the machine's flash memory, and what it starts where it expects it.
fn with_firmware(boot: &mut Boot, firmware: &Path, tree: &Path) {
    let loaded =
        |file: &Path, address: u64| format!("loader,file={},addr={address:#x},force-raw=on", as_value(file));
    let bundle = boot.bundle.clone().unwrap_or_default();
    let words =
        ["-machine".into(), "secure=on".into(), "-bios".into(), firmware.into(), "-dtb".into(), tree.into()];
    boot.extra.extend(words);
    for (file, address) in [(&boot.image, IMAGE), (&bundle, BUNDLE)] {
        boot.extra.extend(["-device".into(), loaded(file, address).into()]);
    }
}

fn judge(transcript: &Transcript) -> std::result::Result<(), String> {
    if transcript.done != Some(0) || !transcript.text.contains(DECIDED) {
        return Err(format!("the hypervisor did not say \"{DECIDED}\", or did not end in order"));
    }
    if !transcript.lines().any(|line| line.contains(" failed=0")) {
        return Err("the guest did not report failed=0".to_owned());
    }
    let said = transcript.text.split_once(COUNTED).and_then(|(_, said)| said.lines().next());
    let counted = said.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    let counted = counted.ok_or("the firmware did not say how often it was called")?;
    if counted & BYPASS_STOPPED == 0 {
        return Err("SMCCC_ARCH_WORKAROUND_2 was not called".to_owned());
    }
    match counted & !BYPASS_STOPPED {
        calls if calls < EXITS => Err(format!("only {calls} exits called the firmware")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_trees_lose_their_free_space() {
        // Structure at 64, 16 bytes; strings at 80, 4 bytes; then free space.
        let header: [u32; 10] = [0xd00d_feed, 4096, 64, 80, 48, 17, 16, 0, 4, 16];
        let mut tree: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
        tree.resize(4096, 0);
        assert_eq!(trim(&mut tree), Some(()));
        assert_eq!((tree.len(), &tree[4..8]), (84, &84u32.to_be_bytes()[..]));
        assert_eq!(trim(&mut vec![0; 20]), None);
    }

    #[test]
    fn what_the_firmware_counted_is_judged() {
        let said = |text: &str, done| {
            let consoles = vec!["@done passed=83 failed=0 skipped=11\r\n".to_owned()];
            judge(&Transcript { text: text.to_owned(), consoles, done, ..Transcript::default() })
        };
        let good = format!("CPU 0: {DECIDED}\n\nfirmware: 800000000000c0c3\n");
        assert_eq!(said(&good, Some(0)), Ok(()));
        assert!(said(&good, None).is_err());
        for (bad, expected) in [
            (good.replace("80000000", "00000000"), "WORKAROUND_2"),
            (good.replace("c0c3", "0003"), "only 3"),
            (good.replace(COUNTED, "firm: "), "did not say"),
            (good.replace("call", "cell"), "did not say"),
        ] {
            assert!(said(&bad, Some(0)).unwrap_err().contains(expected), "{bad}");
        }
    }
}
