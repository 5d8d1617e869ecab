//! What can go wrong, as the C ABI reports it.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    InvalidArgument = 1,
    ResourceExhausted = 2,
    Internal = 3,
    Unimplemented = 4,
    OutOfSteps = 5,
    OutOfMemory = 6,
}

#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into() }
    }
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self { code: Code::ResourceExhausted, message: message.into() }
    }
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self { code: Code::Unimplemented, message: message.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The crate's errors are boxed; ours pass through them unchanged.
impl From<Box<dyn std::error::Error + Send + Sync>> for Failure {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(other) => Failure::invalid(other.to_string()),
        }
    }
}
