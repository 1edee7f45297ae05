resource "sallyport_anycast_peer" "transit" {
  name      = "transit-a"
  place     = "region:eu"
  address   = "192.0.2.1"
  remote_as = 64500
  local_as  = 64501
  bfd       = {}
}
