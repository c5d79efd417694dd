"""The English-German corpora of WMT 2016."""
