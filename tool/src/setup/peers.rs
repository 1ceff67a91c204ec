// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisors that Turnstile is compared with: Debian's Linux kernels as KVM hosts, and Debian's Xen,
//! downloaded once into the cache as an ordinary user.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::fetch::{Fetch, file_name, find};
use super::{Lock, debian};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};

/// Where a peer comes from, and what is taken out of its packages.
struct Source {
    /// The architecture of the machine that it runs on.
    isa: Isa,
    /// The folder in the cache.
    name: &'static str,
    /// What it is, for people.
    title: &'static str,
    /// The release: fixed, whatever this machine runs, so that figures stay comparable.
    release: &'static str,
    /// A package that always depends on the newest version.
    meta: &'static str,
    /// How that version's package begins.
    prefix: &'static str,
    /// What is appended to its name for the package with the symbols, if there is one.
    debug: Option<&'static str>,
    /// Files of the package.
    files: &'static [File],
    /// Further ones, which only the rows of disks and networks need.
    devices: &'static [File],
    /// Files of the package with the symbols.
    symbols: &'static [File],
}

/// How a file's path begins in a package, a `*` standing for one folder of any name; and its name here.
type File = (&'static str, &'static str);

const LINUX: Source = Source {
    isa: Isa::Arm64,
    name: "linux",
    title: "Debian's Linux kernel, the KVM host",
    release: "bookworm-backports",
    meta: "linux-image-cloud-arm64",
    prefix: "linux-image-",
    debug: None,
    files: &[("boot/vmlinuz-", "linux")],
    devices: &DEVICES,
    symbols: &[],
};

/// The modules of a host whose guests have disks and networks.
const DEVICES: [File; 9] = [
    ("lib/modules/*/kernel/drivers/block/brd.ko", RAM_DISKS),
    ("lib/modules/*/kernel/net/llc/llc.ko", NETWORKS[0]),
    ("lib/modules/*/kernel/net/802/stp.ko", NETWORKS[1]),
    ("lib/modules/*/kernel/net/bridge/bridge.ko", NETWORKS[2]),
    ("lib/modules/*/kernel/drivers/net/tun.ko", NETWORKS[3]),
    ("lib/modules/*/kernel/drivers/net/tap.ko", NETWORKS[4]),
    ("lib/modules/*/kernel/drivers/vhost/vhost_iotlb.ko", NETWORKS[5]),
    ("lib/modules/*/kernel/drivers/vhost/vhost.ko", NETWORKS[6]),
    ("lib/modules/*/kernel/drivers/vhost/vhost_net.ko", NETWORKS[7]),
];

/// The file with the driver of disks in memory. Its name does not begin with a digit: only the rows of disks need it.
const RAM_DISKS: &str = "brd";
/// The same of a bridge, of network devices of programs, and of vhost-net, each behind those that it needs.
const NETWORKS: [&str; 8] = ["llc", "stp", "bridge", "tun", "tap", "vhost_iotlb", "vhost", "vhost_net"];

const LINUX_6_1: Source = Source {
    name: "linux-6.1",
    title: "Debian's Linux kernel 6.1, a KVM host",
    release: "bookworm",
    devices: &[],
    ..LINUX
};

/// On a PC KVM is in modules, and SVM's needs the security processor's. Not the cloud's kernel: its configuration makes
/// exits cheaper by one to four percent, and the common one is what people run.
const LINUX_X86: Source = Source {
    isa: Isa::X86_64,
    meta: "linux-image-amd64",
    files: &[
        ("boot/vmlinuz-", "linux"),
        ("lib/modules/*/kernel/virt/lib/irqbypass.ko", "0-irqbypass"),
        ("lib/modules/*/kernel/drivers/crypto/ccp/ccp.ko", "1-ccp"),
        ("lib/modules/*/kernel/arch/x86/kvm/kvm.ko", "2-kvm"),
        ("lib/modules/*/kernel/arch/x86/kvm/kvm-amd.ko", "3-kvm-amd"),
    ],
    ..LINUX
};

const LINUX_6_1_X86: Source = Source {
    name: "linux-6.1",
    title: "Debian's Linux kernel 6.1, a KVM host",
    release: "bookworm",
    devices: &[],
    ..LINUX_X86
};

/// On POWER KVM is in modules, too. The kernel with pages of 64 KiB, in which XIVE's are: with smaller ones KVM cannot
/// give them to a guest.
const LINUX_POWER: Source = Source {
    isa: Isa::Power64,
    meta: "linux-image-powerpc64le-64k",
    files: &[
        ("boot/vmlinux-", "linux"),
        ("lib/modules/*/kernel/arch/powerpc/kvm/kvm.ko", "0-kvm"),
        ("lib/modules/*/kernel/arch/powerpc/kvm/kvm-hv.ko", "1-kvm-hv"),
    ],
    ..LINUX
};

const XEN: Source = Source {
    isa: Isa::Arm64,
    name: "xen",
    title: "Debian's Xen",
    release: "bookworm",
    meta: "xen-system-arm64",
    prefix: "xen-hypervisor-4",
    debug: Some("-dbg"),
    files: &[("boot/xen-", "xen")],
    devices: &[],
    symbols: &[("usr/lib/debug/boot/xen-syms-", "xen-syms")],
};

/// A peer in the cache.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its folder.
    pub folder: PathBuf,
    /// The version of its authors, without Debian's: `6.12.95`.
    pub version: String,
}

/// What is written beside the files.
#[derive(Debug, Serialize, Deserialize)]
struct Versions {
    package: String,
}

impl Peer {
    /// Its folder's name.
    pub fn name(&self) -> &OsStr {
        self.folder.file_name().unwrap_or_default()
    }

    /// The kernel that KVM is in: a raw arm64 `Image`, a bzImage, or a vmlinux.
    pub fn linux(&self) -> PathBuf {
        self.folder.join("linux")
    }

    /// The modules that KVM is in, in the order in which they are to be loaded; none if it is in the kernel.
    pub fn modules(&self) -> Vec<PathBuf> {
        let named = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        };
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut modules: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(named).collect();
        modules.sort();
        modules
    }

    /// The module with disks in memory, of the host that has it.
    pub fn ram_disks(&self) -> PathBuf {
        self.folder.join(RAM_DISKS)
    }

    /// The modules with networks between virtual machines, in the order in which they are to be loaded, of the host that has them.
    pub fn networks(&self) -> [PathBuf; NETWORKS.len()] {
        NETWORKS.map(|name| self.folder.join(name))
    }

    /// Xen's raw image.
    pub fn xen(&self) -> PathBuf {
        self.folder.join("xen")
    }

    /// Xen's program with its symbols.
    pub fn xen_symbols(&self) -> PathBuf {
        self.folder.join("xen-syms")
    }
}

/// Returns the KVM host, downloading it if it is not in the cache.
pub fn linux(layout: &Layout, isa: Isa) -> Result<Peer> {
    match isa {
        Isa::Arm64 => ensure(layout, &LINUX),
        Isa::X86_64 => ensure(layout, &LINUX_X86),
        Isa::Power64 => ensure(layout, &LINUX_POWER),
    }
}

/// Returns the older KVM host, where there is one, or else the newer one, downloading it if it is not in the cache.
pub fn linux_6_1(layout: &Layout, isa: Isa) -> Result<Peer> {
    match isa {
        Isa::Arm64 => ensure(layout, &LINUX_6_1),
        Isa::X86_64 => ensure(layout, &LINUX_6_1_X86),
        Isa::Power64 => linux(layout, isa),
    }
}

/// Returns Xen, downloading it if it is not in the cache.
pub fn xen(layout: &Layout) -> Result<Peer> {
    ensure(layout, &XEN)
}

/// The versions in the cache of what is compared with on an architecture, with their names; `None` if one is not there.
pub fn versions(layout: &Layout, isa: Isa) -> Option<String> {
    let version = |source: &Source| Some(cached(&folder(layout, source), source)?.version);
    Some(match isa {
        Isa::Arm64 => {
            format!("Linux {} and {}, Xen {}", version(&LINUX)?, version(&LINUX_6_1)?, version(&XEN)?)
        }
        Isa::X86_64 => format!("Linux {} and {}", version(&LINUX_X86)?, version(&LINUX_6_1_X86)?),
        Isa::Power64 => format!("Linux {}", version(&LINUX_POWER)?),
    })
}

fn folder(layout: &Layout, source: &Source) -> PathBuf {
    layout.cache().join("debian").join(source.isa.debian()).join("peers").join(source.name)
}

fn ensure(layout: &Layout, source: &Source) -> Result<Peer> {
    let folder = folder(layout, source);
    let _lock = Lock::take(&folder, "lock")?;
    if let Some(peer) = cached(&folder, source) {
        return Ok(peer);
    }
    fetch(&folder, source)
        .map_err(|failure| failure.context_line(&format!("{} cannot be fetched", source.title)))?;
    cached(&folder, source)
        .ok_or_else(|| Failure::failed(format!("{} is not where it was stored", source.title)))
}

fn cached(folder: &Path, source: &Source) -> Option<Peer> {
    let versions: Versions =
        serde_json::from_str(&fs::read_to_string(folder.join("versions.json")).ok()?).ok()?;
    let complete = source
        .files
        .iter()
        .chain(source.devices)
        .chain(source.symbols)
        .all(|(_, name)| folder.join(name).is_file());
    let version = upstream(&versions.package)?;
    complete.then(|| Peer { folder: folder.to_path_buf(), version })
}

fn fetch(folder: &Path, source: &Source) -> Result<()> {
    let fetch = Fetch::begin(folder, format!("fetching {}", source.title), source.isa, source.release)?;
    let package = fetch.apt.dependency(source.meta, source.prefix)?;
    let debug = source.debug.map(|suffix| format!("{package}{suffix}"));
    let wanted: Vec<&str> = std::iter::once(package.as_str()).chain(debug.as_deref()).collect();
    let files = fetch.download(format!("downloading {package}"), &wanted)?;
    for (name, inside) in wanted.iter().zip([&[source.files, source.devices].concat(), source.symbols]) {
        debian::unpack_all(find(&files, name)?, inside, folder)?;
    }
    // A table of symbols belongs to the kernel that was here before.
    let _ = fs::remove_file(folder.join(SYMBOLS));
    let versions = Versions { package: file_name(find(&files, &package)?) };
    let text = serde_json::to_string_pretty(&versions).context(|| "cannot describe the peer".into())?;
    write_atomically(&folder.join("versions.json"), text.as_bytes())?;
    fetch.done();
    Ok(())
}

/// The file beside a kernel with its table of symbols, which only the kernel itself can tell.
pub const SYMBOLS: &str = "functions";

/// The authors' version in a package's file name: its numbers and dots up to anything else.
pub(super) fn upstream(package: &str) -> Option<String> {
    let version = package.split('_').nth(1)?;
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let version = version.get(..end)?.trim_end_matches('.');
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_authors() {
        let linux = "linux-image-6.12.95+deb12-cloud-arm64_6.12.95-1~bpo12+1_arm64.deb";
        assert_eq!(upstream(linux).as_deref(), Some("6.12.95"));
        let xen = "xen-hypervisor-4.17-arm64_4.17.5+72-g01140da4e8-1_arm64.deb";
        assert_eq!(upstream(xen).as_deref(), Some("4.17.5"));
        assert_eq!(upstream("nonsense"), None);
        assert_eq!(upstream("nothing_-1_arm64.deb"), None);
    }

    #[test]
    fn a_package_is_not_taken_for_its_debug_package() {
        let files = [PathBuf::from("p/xen-4-dbg_1_arm64.deb"), PathBuf::from("p/xen-4_1_arm64.deb")];
        assert_eq!(find(&files, "xen-4").unwrap(), files[1]);
        assert!(find(&files, "xen").is_err());
    }
}
