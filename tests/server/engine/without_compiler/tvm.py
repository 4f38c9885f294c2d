"""In the place of TVM, which takes seconds to import, for a worker that asks it nothing."""
