resource "sallyport_anycast_prefix" "v4" {
  prefix    = "198.51.100.0/24"
  min_sites = 2
}
