"""How fast Headrace is, against bare tables and peers in the same run: `make bench`, docs/performance.md."""
