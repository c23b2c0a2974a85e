"""docs/performance.md, its charts and README's short form, written from what was measured: `make performance`."""
