//! Too little memory ends one call, and not the process.
//!
//! An allocation that fails unwinds to the call's edge, where `is_short`
//! tells that it did. The unwinding itself, and what drops on its way, finds its
//! memory in a reserve.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::panic::resume_unwind;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Once;

/// What an unwinding carries that began with a failed allocation.
pub struct OutOfMemory;

thread_local! {
    // Without a destructor, so that it needs no memory of its own.
    static IS_SHORT: Cell<bool> = const { Cell::new(false) };
}

/// Makes failed allocations of all threads unwind, and forgets those so far of
/// this thread.
pub fn begin_call() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| std::alloc::set_alloc_error_hook(unwind));
    IS_SHORT.set(false);
}

/// Whether an allocation of this thread failed since `begin_call`, also where a
/// library caught the unwinding and made another error of it.
pub fn is_short() -> bool {
    IS_SHORT.get()
}

/// Runs the work of a thread that a call started: unwinds at its end where
/// `is_short`, so that the call's thread learns of it.
pub fn or_unwind<T>(work: impl FnOnce() -> T) -> T {
    let made = work();
    if is_short() {
        resume_unwind(Box::new(OutOfMemory));
    }
    made
}

/// The standard library allows the hook to unwind. While the thread unwinds
/// already it returns, and the process aborts: for that the reserve has to be
/// used up as well.
fn unwind(_: Layout) {
    IS_SHORT.set(true);
    if !std::thread::panicking() {
        // Allocates nothing for a value without bytes, and calls no panic hook.
        resume_unwind(Box::new(OutOfMemory));
    }
}

/// Runs before main, while there is one thread. A failed allocation within the
/// capture of a backtrace could not unwind, and would leave its lock held; the
/// words of our errors have no backtrace.
#[used]
#[link_section = ".init_array"]
static NO_BACKTRACES: extern "C" fn() = no_backtraces;

extern "C" fn no_backtraces() {
    // SAFETY: both end with a zero, and no other thread reads the environment.
    unsafe { libc::setenv(c"RUST_LIB_BACKTRACE".as_ptr(), c"0".as_ptr(), 1) };
}

/// The system's allocator, with a reserve for small blocks.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: blocks come from the system's allocator or the reserve, and go back to
// where they came from. No function unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = System.alloc(layout);
        if block.is_null() {
            return RESERVE.take(layout);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = System.alloc_zeroed(layout);
        if !block.is_null() {
            return block;
        }
        let block = RESERVE.take(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if RESERVE.has(block) {
            RESERVE.give_back();
        } else {
            System.dealloc(block, layout);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !RESERVE.has(block) {
            let grown = System.realloc(block, layout, size);
            if !grown.is_null() {
                return grown;
            }
        }
        let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            block.copy_to_nonoverlapping(moved, layout.size().min(size));
            self.dealloc(block, layout);
        }
        moved
    }
}

const RESERVE_BYTES: usize = 256 << 10;
/// Of these, what only threads that unwind may use.
const LAST_BYTES: usize = 64 << 10;
/// Larger blocks fail: the reserve is for what an unwinding needs.
const LARGEST_BLOCK: usize = 16 << 10;

/// A stack of blocks, which is empty again when all of them were given back.
#[repr(align(4096))]
struct Reserve {
    bytes: UnsafeCell<[u8; RESERVE_BYTES]>,
    /// The number of blocks that are out, above 32 bits of the bytes in use.
    state: AtomicU64,
}

// SAFETY: `state` gives each byte to one block at a time.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve =
    Reserve { bytes: UnsafeCell::new([0; RESERVE_BYTES]), state: AtomicU64::new(0) };

impl Reserve {
    const ONE_BLOCK: u64 = 1 << 32;
    const USED: u64 = Self::ONE_BLOCK - 1;

    fn begin(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    fn has(&self, block: *mut u8) -> bool {
        let begin = self.begin() as usize;
        (begin..begin + RESERVE_BYTES).contains(&(block as usize))
    }

    /// A block, or null. Its first bytes are aligned because `bytes` begins a
    /// page.
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST_BLOCK || layout.align() > 4096 {
            return null_mut();
        }
        let kept = if std::thread::panicking() { 0 } else { LAST_BYTES };
        let end_of = |state: u64| {
            let begin = ((state & Self::USED) as usize).next_multiple_of(layout.align());
            (begin, begin + layout.size().max(1))
        };
        let taken = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            let (_, end) = end_of(state);
            let blocks = (state & !Self::USED) + Self::ONE_BLOCK;
            (end <= RESERVE_BYTES - kept).then_some(blocks | end as u64)
        });
        match taken {
            // SAFETY: `end_of` is within `bytes`.
            Ok(state) => unsafe { self.begin().add(end_of(state).0) },
            Err(_) => null_mut(),
        }
    }

    fn give_back(&self) {
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            let left = state - Self::ONE_BLOCK;
            Some(if left < Self::ONE_BLOCK { 0 } else { left })
        });
    }
}
